"""Options of llama.cpp's programs at the pinned commit that end with an error: another command or program has them."""

# Options that llama.cpp has for a run and duo has only in `duo chat`.
IN_CHAT = frozenset(
    ("-sys", "-sysf", "--system-prompt", "--system-prompt-file", "--chat-template", "--chat-template-file",
     "--chat-template-kwargs", "--reasoning-format", "-rea", "--reasoning", "--reasoning-effort",
     "--reasoning-preserve", "--no-reasoning-preserve", "-cnv", "-o", "--output", "--output-file",
     "--conversation", "-st", "--single-turn")
)  # fmt: skip

# A user who types one of these wants a conversation.
SAYS_CHAT = frozenset(
    ("-i", "--interactive", "-cnv", "--conversation", "-st", "--single-turn", "-sys", "-sysf", "--system-prompt",
     "--system-prompt-file")
)  # fmt: skip

# Options of a run that a chat does not take. A user who types one wants no chat template.
IN_RUN = frozenset(
    ("-no-cnv", "--no-conversation", "-if", "--interactive-first", "--in-prefix", "--in-suffix", "--in-prefix-bos")
)

# Options of llama-server that `duo serve` has.
IN_SERVE = frozenset(
    ("-a", "--alias", "--api-key", "--api-key-file", "--api-prefix", "--cors-credentials", "--cors-headers",
     "--cors-methods", "--cors-origins", "--embd-normalize", "--embedding", "--embeddings", "--host",
     "--log-prompts-dir", "--metrics", "--models-autoload", "--models-dir", "--models-max", "--models-preset",
     "--no-cors-credentials", "--no-models-autoload", "--no-prefill-assistant", "--no-slots", "--no-ui",
     "--no-webui", "--path", "--pooling", "--port", "--prefill-assistant", "--props", "--rerank", "--reranking",
     "--reuse-port", "--sleep-idle-seconds", "--slot-save-path", "--slots", "--spm-infill", "--sse-ping-interval",
     "--ssl-cert-file", "--ssl-key-file", "--tags", "--timeout", "-to", "--ui", "--ui-config", "--ui-config-file",
     "--webui", "--webui-config", "--webui-config-file")
)  # fmt: skip

# Options that give a text its prompt. A server gets prompts from its clients.
OF_PROMPT = frozenset(("-p", "--prompt", "-f", "--file", "-bf", "--binary-file"))

# Those of programs for other purposes.
_ELSEWHERE = {
    "llama download": """
        --dflash --eagle3 --mtp
    """,
    "llama-batched-bench": """
        --output-format -npl -npp -ntg -pps -tgs
    """,
    "llama-cvector-generator": """
        --method --negative-file --pca-batch --pca-iter --positive-file
    """,
    "llama-debug": """
        --logits-output-dir --save-logits --tensor-filter
    """,
    "llama-diffusion-cli": """
        --diffusion-add-gumbel-noise --diffusion-alg-temp --diffusion-algorithm
        --diffusion-block-length --diffusion-cfg-scale --diffusion-eps --diffusion-steps
        --diffusion-visual
    """,
    "llama-embedding": """
        --attention --cls-separator --embd-output-format --embd-separator
    """,
    "llama-finetune": """
        --epochs --learning-rate --learning-rate-decay-epochs --learning-rate-min --optimizer
        --val-split --weight-decay -decay-epochs -epochs -lr -lr-min -opt -val-split -wd
    """,
    "llama-imatrix": """
        --chunk --chunks --from-chunk --in-file --no-ppl --output-format --output-frequency
        --parse-special --ppl --process-output --save-frequency --show-statistics -ofreq
    """,
    "llama-parallel": """
        --sequences -ns
    """,
    "llama-passkey": """
        --junk --pos
    """,
    "llama-perplexity": """
        --hellaswag --hellaswag-tasks --kl-divergence --kl-divergence-base --multiple-choice
        --multiple-choice-tasks --ppl-output-type --ppl-stride --save-all-logits --winogrande
        --winogrande-tasks
    """,
    "llama-results": """
        --check
    """,
    "llama-retrieval": """
        --chunk-separator --chunk-size --context-file
    """,
    "llama-tokenize": """
        --ids --no-bos --no-parse-special --show-count --stdin
    """,
    "llama-tts": """
        --tts-lang --tts-speaker-file
    """,
}
PROGRAM = {name: program for program, names in _ELSEWHERE.items() for name in names.split()}

# Those of llama-server and llama-cli that are the work of another program, by what does it.
_WORK_OF_OTHERS = {
    "an agent runs tools, and duo serve writes its texts (docs/server.md)": """
        --agent -ag --mcp-servers-config --mcp-servers-json --tools --tools-runtime --ui-mcp-proxy --webui-mcp-proxy
    """,
    "any client of OpenAI's routes talks with a server that runs": """
        --server-base
    """,
    "duo check prints the memory that a pair needs, and where": """
        --fit-print -fitp
    """,
    "duo bench --synthetic pretends acceptance": """
        --spec-synth-len --spec-synth-rates
    """,
    "ffmpeg makes pictures of a video, and --image takes them": """
        --video
    """,
}
WORK_OF_OTHERS = {name: what for what, names in _WORK_OF_OTHERS.items() for name in names.split()}
