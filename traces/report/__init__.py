"""One page and one timeline for what runs came to."""
