# Compiles for any Linux on x86_64 with glibc 2.28 or newer by zig cc. script/cross says where zig is found.
include(${CMAKE_CURRENT_LIST_DIR}/cross/zig.cmake)
zig_toolchain(linux)
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR x86_64)
