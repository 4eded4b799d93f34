"""What a developer needs and a user does not."""
