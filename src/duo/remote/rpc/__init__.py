"""GGML RPC servers of llama.cpp: devices on other machines."""
