# zig_toolchain(TARGET): compilers of script/cross, and its libraries alone where it has built them.
macro(zig_toolchain target)
  execute_process(COMMAND ${CMAKE_CURRENT_LIST_DIR}/../script/cross tools ${target} OUTPUT_VARIABLE zig_tools
    OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
  set(CMAKE_C_COMPILER ${zig_tools}/cc)
  set(CMAKE_AR ${zig_tools}/ar)
  set(CMAKE_RANLIB ${zig_tools}/ranlib)
  set(CMAKE_RC_COMPILER ${zig_tools}/rc)
  set(CMAKE_DLLTOOL ${zig_tools}/dlltool)
  set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
  set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
  set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
  set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
endmacro()
