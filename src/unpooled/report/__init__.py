"""The report of a run as one HTML file, its model card, and the pictures in them; no plotting library, no network.

Nothing is sent and no row is asked for: everything is read from the run folder and from the fitted model.
Read `page` first (the order of a report), then `folder` (what a run folder holds), `kinds` (what each kind of model shows),
`markup`, `style`, `svg` and `statistics` (tables and charts as text), `concepts` (pictures of concepts), `measured` (how the model does on
rows of this process), `words` (what was sent, in words), `card` (the model card), `check_page` (the page of `unpooled check`).
"""
