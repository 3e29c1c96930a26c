"""Device models that are shipped, each in one TOML file with its source."""
