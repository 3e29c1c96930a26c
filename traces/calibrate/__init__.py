"""Device models fitted to recordings, and judged on what was held out."""
