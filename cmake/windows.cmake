# Cross-compiles for Windows x64 (UCRT) by zig cc; tests run under Wine. script/cross says where zig is found.
include(${CMAKE_CURRENT_LIST_DIR}/cross/zig.cmake)
zig_toolchain(windows)
set(CMAKE_SYSTEM_NAME Windows)
set(CMAKE_SYSTEM_PROCESSOR x86_64)
set(CMAKE_CROSSCOMPILING_EMULATOR wine)
