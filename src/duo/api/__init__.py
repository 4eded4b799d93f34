"""What a program calls: Duo, its shortcuts, conversations, the calls that llama_cpp.Llama has."""
