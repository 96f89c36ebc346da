"""Mathematics that several models share: pure functions of arrays. Knows nothing of clients and sends nothing."""
