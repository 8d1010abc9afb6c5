# `cmake --install` and CPack. Components: `program` is what everybody gets; `libraries` are copies of
# shared libraries for the archive alone; `development` is libnibble.so with its headers and what
# find_package(nibble) reads.

# The program looks for its data in ../share/nibble and for libraries in ../lib/nibble before the
# system's: both from where it lies, so an unpacked archive works in any folder.
set(nibble_data ${CMAKE_INSTALL_DATADIR}/nibble)
set(nibble_libraries lib/nibble)
set_target_properties(nibble PROPERTIES INSTALL_RPATH "$ORIGIN/../${nibble_libraries}")
install(TARGETS nibble RUNTIME COMPONENT program)
install(FILES LICENSE README.md README.zh-TW.md CHANGELOG.md packaging/copyright
  DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT program)
foreach(file config.json mini.dat tokenizer.json probes.json)
  install(FILES models/mini/${file} DESTINATION ${nibble_data}/models/mini COMPONENT program)
endforeach()

# Manual and completions: the program writes them itself, from the declarations of its options.
if(NOT CMAKE_CROSSCOMPILING OR CMAKE_CROSSCOMPILING_EMULATOR)
  set(made ${CMAKE_BINARY_DIR}/share)
  add_custom_command(OUTPUT ${made}/stamp DEPENDS nibble VERBATIM
    COMMAND ${CMAKE_COMMAND} -E rm -rf ${made}
    COMMAND ${CMAKE_COMMAND} -E make_directory ${made}
    COMMAND nibble man --out-dir ${made}/man1
    COMMAND nibble completions bash > ${made}/nibble
    COMMAND nibble completions zsh > ${made}/_nibble
    COMMAND nibble completions fish > ${made}/nibble.fish
    COMMAND ${CMAKE_COMMAND} -E touch ${made}/stamp
    COMMENT "Manual pages and completions")
  add_custom_target(manual ALL DEPENDS ${made}/stamp)
  install(DIRECTORY ${made}/man1 DESTINATION ${CMAKE_INSTALL_MANDIR} COMPONENT program)
  install(FILES ${made}/nibble
    DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions COMPONENT program)
  install(FILES ${made}/_nibble
    DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions COMPONENT program)
  install(FILES ${made}/nibble.fish
    DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d COMPONENT program)
endif()

# From PREFIX/lib, or from PREFIX/lib/ARCHITECTURE.
set_target_properties(libnibble PROPERTIES INSTALL_RPATH "$ORIGIN/nibble;$ORIGIN/../nibble")
install(TARGETS libnibble EXPORT nibbleTargets LIBRARY COMPONENT development)
install(DIRECTORY include/nibble DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT development)
install(FILES examples/CMakeLists.txt examples/teach.cpp
  DESTINATION ${CMAKE_INSTALL_DOCDIR}/examples COMPONENT development)
include(CMakePackageConfigHelpers)
set(nibble_cmake ${CMAKE_INSTALL_LIBDIR}/cmake/nibble)
configure_package_config_file(cmake/nibbleConfig.cmake.in ${CMAKE_BINARY_DIR}/nibbleConfig.cmake
  INSTALL_DESTINATION ${nibble_cmake})
write_basic_package_version_file(${CMAKE_BINARY_DIR}/nibbleConfigVersion.cmake
  COMPATIBILITY SameMajorVersion)
install(EXPORT nibbleTargets NAMESPACE nibble:: DESTINATION ${nibble_cmake} COMPONENT development)
install(FILES ${CMAKE_BINARY_DIR}/nibbleConfig.cmake ${CMAKE_BINARY_DIR}/nibbleConfigVersion.cmake
  DESTINATION ${nibble_cmake} COMPONENT development)

# Everything the program needs beside the C library, each with the copyright file of its package.
configure_file(cmake/install_libraries.cmake.in ${CMAKE_BINARY_DIR}/install_libraries.cmake.in @ONLY)
file(GENERATE OUTPUT ${CMAKE_BINARY_DIR}/install_libraries.cmake
  INPUT ${CMAKE_BINARY_DIR}/install_libraries.cmake.in)
install(SCRIPT ${CMAKE_BINARY_DIR}/install_libraries.cmake COMPONENT libraries EXCLUDE_FROM_ALL)

set(CPACK_PACKAGE_NAME nibble)
set(CPACK_PACKAGE_VENDOR "the nibble authors")
set(CPACK_PACKAGE_CONTACT "the nibble authors <nibble@localhost>" CACHE STRING
  "Who made the package, as Name <address>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "fine-tunes and runs language models with NVFP4 weights")
set(CPACK_PACKAGE_DESCRIPTION
"nibble fine-tunes every parameter of a Qwen3 model whose forward weights are
NVFP4 (four bits a weight), and runs the result, on the CPU or an NVIDIA GPU. A
small model to begin with is part of the package: nibble chat --model mini.")
set(CPACK_RESOURCE_FILE_LICENSE ${PROJECT_SOURCE_DIR}/LICENSE)
set(CPACK_GENERATOR DEB TGZ)
set(CPACK_STRIP_FILES ON)
string(TOLOWER "${CMAKE_SYSTEM_NAME}-${CMAKE_SYSTEM_PROCESSOR}" nibble_system)
set(CPACK_PACKAGE_FILE_NAME nibble-${PROJECT_VERSION}-${nibble_system})
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_PROJECT_CONFIG_FILE ${PROJECT_SOURCE_DIR}/cmake/package_kinds.cmake)
include(CPack)
