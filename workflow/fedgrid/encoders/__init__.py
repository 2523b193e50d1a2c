"""Encoders of images: guided gradients (saliency) and autoencoders."""
