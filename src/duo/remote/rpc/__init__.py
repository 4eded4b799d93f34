"""llama.cpp's RPC servers: devices on other machines."""
