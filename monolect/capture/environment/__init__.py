"""What the code of a step reads around it, and guards that notice a change."""
