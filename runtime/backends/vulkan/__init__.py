"""The Vulkan backend: compute on any GPU with a Vulkan 1.2 driver; its modules need the extra ``vulkan``."""
