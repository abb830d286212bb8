"""What authors of pipelines and providers test with, and what the demo and the bench are made of."""
