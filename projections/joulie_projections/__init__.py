"""What we believe: pods, power, hardware, twins; and the projector that turns facts into belief."""
