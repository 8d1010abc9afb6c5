# Read by CPack for each kind of package: what goes into it.
#
# The .deb links to Debian's libraries and depends on their packages: it gets their security fixes.
# The archive must run where none of them is installed, so it brings copies, found through RPATH
# ($ORIGIN/../lib/nibble). Linking statically instead is not possible with Debian's packages: those of
# fmt and Highway have no .a files.
list(GET CPACK_INSTALL_CMAKE_PROJECTS 0 build_folder)
set(CPACK_INSTALL_CMAKE_PROJECTS ${build_folder} nibble program / ${build_folder} nibble development /)
if(CPACK_GENERATOR STREQUAL "TGZ")
  list(APPEND CPACK_INSTALL_CMAKE_PROJECTS ${build_folder} nibble libraries /)
endif()
