"""The audit: recorded messages fed to fresh actors, every effect compared."""
