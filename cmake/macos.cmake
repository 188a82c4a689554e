# Compiles for macOS on Apple's processors by zig cc, as a check. script/cross has the headers of the libraries alone: what is
# theirs is left open in the program, which therefore does not start.
include(${CMAKE_CURRENT_LIST_DIR}/cross/zig.cmake)
zig_toolchain(macos)
set(CMAKE_SYSTEM_NAME Darwin)
set(CMAKE_SYSTEM_PROCESSOR arm64)
set(CMAKE_OSX_SYSROOT "")
set(CMAKE_INSTALL_NAME_TOOL false)
set(CMAKE_EXE_LINKER_FLAGS_INIT "-Wl,-undefined,dynamic_lookup")
