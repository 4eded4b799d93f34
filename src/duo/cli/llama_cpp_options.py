"""Options of llama.cpp's programs at the pinned commit that duo does not support: an error, never ignored."""

# Options that llama.cpp has for a run and duo has only in `duo chat`.
IN_CHAT = frozenset(
    ("-sys", "-sysf", "--system-prompt", "--system-prompt-file", "--chat-template", "--chat-template-file",
     "--chat-template-kwargs", "--reasoning-format")
)  # fmt: skip

# And those of llama-server that `duo serve` has.
IN_SERVE = frozenset(
    ("--host", "--port", "--api-prefix", "-a", "--alias", "-to", "--timeout", "--sse-ping-interval", "--api-key",
     "--api-key-file", "--cors-origins", "--ssl-key-file", "--ssl-cert-file", "--slots", "--no-slots", "--metrics",
     "--ui", "--no-ui")
)  # fmt: skip

NOT_IN_DUO = frozenset(
    """
    --adaptive-decay --adaptive-target --agent --attention --audio
    --backend-sampling --binary-file --cache-idle-slots --cache-list --cache-prompt --cache-reuse
    --check --check-tensors --checkpoint-min-step --chunk --chunk-separator --chunk-size --chunks
    --cls-separator --cont-batching --context-file --context-shift
    --cors-credentials --cors-headers --cors-methods --cpu-mask-batch
    --cpu-mask-batch-draft --cpu-moe --cpu-moe-draft --cpu-range-batch --cpu-range-batch-draft --cpu-strict
    --cpu-strict-batch --cpu-strict-batch-draft --cpu-strict-draft --ctx-checkpoints --defrag-thold --dflash
    --diffusion-add-gumbel-noise --diffusion-alg-temp --diffusion-algorithm --diffusion-block-length
    --diffusion-cfg-scale --diffusion-eps --diffusion-steps --diffusion-visual --docker-repo --draft-p-split
    --eagle3 --embd-gemma-default --embd-normalize --embd-output-format --embd-separator --embedding
    --embeddings --epochs --fim-qwen-14b-spec --fim-qwen-30b-default --fim-qwen-3b-default --fim-qwen-7b-default
    --fim-qwen-7b-spec --fit --fit-ctx --fit-print --fit-target --from-chunk --gpt-oss-120b-default
    --gpt-oss-20b-default --grp-attn-n --grp-attn-w --hellaswag --hellaswag-tasks --ids --image
    --image-max-tokens --image-min-tokens --in-file --in-prefix --in-prefix-bos --in-suffix --interactive
    --interactive-first --jinja --junk --keep --kl-divergence --kl-divergence-base --kv-unified
    --kv-unified-per-slot --lazy-mode --learning-rate --learning-rate-decay-epochs --learning-rate-min --log-colors
    --log-disable --log-jsonl --log-prefix --log-prompts-dir --log-timestamps --log-verbose --log-verbosity
    --logits-output-dir --lookup-cache-dynamic --lookup-cache-static --lora-init-without-apply
    --mcp-servers-config --mcp-servers-json --media-path --method --mirostat --mirostat-ent --mirostat-lr
    --mmproj --mmproj-auto --mmproj-offload --mmproj-url --model-url --models-autoload --models-dir --models-max
    --models-preset --mtmd-batch-max-tokens --mtp --multiline-input --multiple-choice --multiple-choice-tasks
    --n-cpu-ffn --n-cpu-moe --n-cpu-moe-draft --negative-file --no-agent --no-bos --no-cache-idle-slots
    --no-cache-prompt --no-cont-batching --no-context-shift --no-conversation --no-cors-credentials --no-host --no-jinja
    --no-kv-unified --no-log-jsonl --no-log-prefix --no-log-timestamps --no-mmproj --no-mmproj-auto
    --no-mmproj-offload --no-models-autoload --no-parse-special --no-perf --no-ppl
    --no-prefill-assistant --no-reasoning-preserve --no-repack --no-show-timings --no-skip-chat-parsing
    --no-spec-draft-backend-sampling --no-ui-mcp-proxy --no-warmup --no-webui --no-webui-mcp-proxy
    --optimizer --output --output-file --output-format --output-frequency
    --parse-special --path --pca-batch --pca-iter --perf --poll --poll-batch --poll-batch-draft --poll-draft --pooling
     --pos --positive-file --ppl --ppl-output-type --ppl-stride --prefill-assistant --print-token-count --prio
    --prio-batch --prio-batch-draft --prio-draft --process-output
    --props --reasoning --reasoning-budget --reasoning-budget-message --reasoning-effort
    --reasoning-preserve --repack --rerank --reranking --reuse-port --rope-scale
    --sampler-seq --samplers --sampling-seq --save-all-logits --save-frequency --save-logits --sequences
    --server-base --show-count --show-statistics --show-timings --simple-io --single-turn --skip-chat-parsing
    --sleep-idle-seconds --slot-prompt-similarity --slot-save-path --spec-default --spec-draft-backend-sampling
    --spec-draft-cpu-mask-batch --spec-draft-cpu-moe --spec-draft-cpu-range-batch --spec-draft-cpu-strict
    --spec-draft-cpu-strict-batch --spec-draft-n-cpu-moe --spec-draft-ncmoe --spec-draft-p-split --spec-draft-poll
    --spec-draft-poll-batch --spec-draft-prio --spec-draft-prio-batch --spec-ngram-min-hits --spec-ngram-mod-n-match
    --spec-ngram-mod-n-max --spec-ngram-mod-n-min --spec-ngram-size-m --spec-ngram-size-n --spec-synth-len
    --spec-synth-rates --special --stdin
    --swa-checkpoints --swa-full --tags --tensor-filter --threads-http --tools --tools-runtime
    --tts-lang --tts-speaker-file --ui-config --ui-config-file --ui-mcp-proxy --val-split
    --verbose-prompt --verbosity --video --video-ffmpeg-dir --video-fps --video-timestamp-interval
    --vision-gemma-12b-default --vision-gemma-4b-default --warmup --webui --webui-config --webui-config-file
    --webui-mcp-proxy --weight-decay --winogrande --winogrande-tasks
    -Cb -Cbd -Crb -Crbd -ag
    -bf -bs -cb -cl -cmoe -cmoed -cms -ctxcp -decay-epochs -dr -dt -epochs -fit -fitc -fitp -fitt -gan -gaw -i -if
    -kvu -lcd -lcs -lr -lr-min -lv -lzm -mli -mm -mmu -mu -ncffn -ncmoe -ncmoed -no-ag -no-cnv -no-kvu -nocb
    -npl -npp -nr -ns -ntg -o -ofreq -opt -pps -ptc -rea -sp -sps -st -tgs -val-split -wd
    """.split()  # noqa: SIM905 (446 lines otherwise)
)
