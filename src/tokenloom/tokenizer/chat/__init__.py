"""Takes records of messages → gives texts, and which stretches of them are trained on."""
