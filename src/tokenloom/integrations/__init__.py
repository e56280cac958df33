"""tokenloom for people who already hold their data in the tools of others."""
