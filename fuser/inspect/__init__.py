"""What a definition or a model became: explanations, predicted and measured times, reports."""
