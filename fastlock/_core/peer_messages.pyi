"""What members say to each other. Nothing of it is for Python: see codec."""
