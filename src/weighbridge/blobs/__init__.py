"""Where the bytes of uploads lie."""
