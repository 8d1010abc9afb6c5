# The library is compiled again here: libFuzzer needs its own instrumentation in it.
add_executable(fuzz_tokenizer ${PROJECT_SOURCE_DIR}/tests/fuzz/fuzz_tokenizer.cpp)
target_include_directories(fuzz_tokenizer PRIVATE ${PROJECT_SOURCE_DIR}/tests)
get_target_property(tokenizer_sources nibble_tokenizer SOURCES)
list(TRANSFORM tokenizer_sources PREPEND ${PROJECT_SOURCE_DIR}/src/tokenizer/)
target_sources(fuzz_tokenizer PRIVATE ${tokenizer_sources})
target_link_libraries(fuzz_tokenizer PRIVATE nibble_core nlohmann_json::nlohmann_json
  PkgConfig::PCRE2 PkgConfig::UTF8PROC)
target_compile_options(fuzz_tokenizer PRIVATE -fsanitize=fuzzer,address,undefined
  -fno-sanitize-recover=all -g -O1)
target_link_options(fuzz_tokenizer PRIVATE -fsanitize=fuzzer,address,undefined)
