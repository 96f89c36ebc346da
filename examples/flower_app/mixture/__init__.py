"""A Flower app: the server fits a mixture, the clients answer its questions."""
