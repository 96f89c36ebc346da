"""Federation in, federation out: what happens to a message on its way."""
