"""What should be: decides which nodes supply performance and which save, and carries it out."""
