# SPDX-License-Identifier: MIT
# Toolchain: compiles on another machine for 64-bit ARM (packages g++-aarch64-linux-gnu, qemu-user);
# what is to be run runs under qemu. NIBBLE_SYSROOT is a folder with the arm64 libraries:
# tools/check_aarch64.sh makes one.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES NIBBLE_SYSROOT)
if(NOT IS_DIRECTORY "${NIBBLE_SYSROOT}")
  message(FATAL_ERROR "NIBBLE_SYSROOT ('${NIBBLE_SYSROOT}') is no folder: tools/check_aarch64.sh makes one and builds in it")
endif()
set(CMAKE_SYSROOT "${NIBBLE_SYSROOT}")
set(CMAKE_FIND_ROOT_PATH "${NIBBLE_SYSROOT}")
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
# pkg-config would give the build machine's libraries.
set(ENV{PKG_CONFIG_SYSROOT_DIR} "${NIBBLE_SYSROOT}")
set(ENV{PKG_CONFIG_LIBDIR}
  "${NIBBLE_SYSROOT}/usr/lib/aarch64-linux-gnu/pkgconfig:${NIBBLE_SYSROOT}/usr/share/pkgconfig")
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64;-L;${NIBBLE_SYSROOT})
