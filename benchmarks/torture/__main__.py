from benchmarks.torture.program import main

main()
