# The libraries of script/cross in place of the system's, for the target CHIMERE_CROSS.
execute_process(COMMAND ${CMAKE_SOURCE_DIR}/script/cross deps ${CHIMERE_CROSS} OUTPUT_VARIABLE cross_prefix
  OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
set(ENV{PKG_CONFIG_LIBDIR} ${cross_prefix}/lib/pkgconfig)
list(APPEND CMAKE_FIND_ROOT_PATH ${cross_prefix})
set(PKG_CONFIG_ARGN --static)
