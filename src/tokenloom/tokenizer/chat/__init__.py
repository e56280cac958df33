"""Takes records of messages → gives texts, and which parts of them are trained on."""
