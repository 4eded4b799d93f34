# What the loops need of llama-common, the code of llama.cpp's programs, compiled from ${LLAMA_CPP_SOURCE}. The rest, chat
# parsers and options, takes minutes.
set(parts common fit json-schema json-schema-to-grammar json log ngram-cache ngram-map ngram-mod reasoning-budget sampling
    speculative subproc trie unicode)
list(TRANSFORM parts PREPEND "${LLAMA_CPP_SOURCE}/common/")
list(TRANSFORM parts APPEND .cpp)
set(LLAMA_BUILD_NUMBER 0) # nothing prints it
configure_file("${LLAMA_CPP_SOURCE}/common/build-info.cpp.in" build-info.cpp)
add_library(llama-common STATIC ${parts} "${CMAKE_CURRENT_BINARY_DIR}/build-info.cpp")
target_include_directories(llama-common PUBLIC "${LLAMA_CPP_SOURCE}/common" "${LLAMA_CPP_SOURCE}/vendor")
target_link_libraries(llama-common PUBLIC llama Threads::Threads)
