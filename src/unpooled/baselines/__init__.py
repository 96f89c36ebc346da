"""The peers that each paper compares with, one a file, in the same form as our models."""
