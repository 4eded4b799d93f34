"""Models from the Hugging Face Hub."""
