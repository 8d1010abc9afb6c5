# The parsers are compiled again here: libFuzzer needs its own instrumentation in them.
add_executable(fuzz_dat ${PROJECT_SOURCE_DIR}/tests/fuzz/fuzz_dat.cpp)
get_target_property(formats_sources nibble_formats SOURCES)
list(TRANSFORM formats_sources PREPEND ${PROJECT_SOURCE_DIR}/src/formats/)
target_sources(fuzz_dat PRIVATE ${formats_sources})
target_link_libraries(fuzz_dat PRIVATE nibble_quant nlohmann_json::nlohmann_json)
target_compile_options(fuzz_dat PRIVATE -fsanitize=fuzzer,address,undefined
  -fno-sanitize-recover=all -g -O1)
target_link_options(fuzz_dat PRIVATE -fsanitize=fuzzer,address,undefined)
