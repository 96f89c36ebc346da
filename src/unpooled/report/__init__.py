"""Pages and pictures of a run; the page needs no plotting library and no network."""
