"""unpooled."""
