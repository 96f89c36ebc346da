"""The models: one file or package per algorithm, with its messages, its questions, its server side and its estimator."""
