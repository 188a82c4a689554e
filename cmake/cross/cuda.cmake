# cross_cuda(TARGET SOURCE...): the CUDA backend where no compiler of the system can link NVIDIA's runtime library. nvcc, of this
# system, compiles the kernels of each file into one fat binary; clang compiles the host part and includes it; the functions of
# the runtime are those of src/kernels/cuda/driver, over NVIDIA's driver. CHIMERE_CUDA_ARCHITECTURES=none: the binaries are empty,
# for a driver that brings its own kernels (test/gpu/emu/driver.cc).
function(cross_cuda target)
  find_program(CHIMERE_NVCC nvcc REQUIRED)
  file(WRITE ${CMAKE_BINARY_DIR}/cuda/empty.cu "")
  execute_process(COMMAND ${CHIMERE_NVCC} -M ${CMAKE_BINARY_DIR}/cuda/empty.cu OUTPUT_VARIABLE reads COMMAND_ERROR_IS_FATAL ANY)
  string(REGEX MATCH "[^ \n]*/cuda_runtime.h" header "${reads}")
  get_filename_component(cuda_h ${header} DIRECTORY)

  set(defines -DCHIMERE_CUDA -D_GNU_SOURCE -DNDEBUG)
  if(CHIMERE_CUDA_ARCHITECTURES MATCHES "90a|none")
    list(APPEND defines -DCHIMERE_CUDA_90A)
  endif()
  set(codes "")
  foreach(arch ${CHIMERE_CUDA_ARCHITECTURES})
    if(arch STREQUAL "none")
      break()
    endif()
    string(REGEX REPLACE "-.*" "" number ${arch})
    if(NOT arch MATCHES "virtual")
      list(APPEND codes -gencode arch=compute_${number},code=sm_${number})
    endif()
    if(NOT arch MATCHES "real")
      list(APPEND codes -gencode arch=compute_${number},code=compute_${number})
    endif()
  endforeach()

  set(src ${CMAKE_SOURCE_DIR}/src)
  set(driver ${src}/kernels/cuda/driver)
  foreach(file ${ARGN})
    get_filename_component(name ${file} NAME_WE)
    set(out ${CMAKE_BINARY_DIR}/cuda/${name})
    if(CHIMERE_CUDA_ARCHITECTURES STREQUAL "none")
      file(WRITE ${out}.fatbin "none")
    else()
      add_custom_command(OUTPUT ${out}.fatbin DEPFILE ${out}.fatbin.d DEPENDS ${file}
        COMMAND ${CHIMERE_NVCC} -fatbin -std=c++20 -O3 ${defines} ${codes} -frandom-seed=${name} -I${src}
          -I${CMAKE_SOURCE_DIR}/include -MD -MT ${out}.fatbin -MF ${out}.fatbin.d -o ${out}.fatbin ${file}
        VERBATIM COMMENT "Kernels of ${name}.cu")
    endif()
    add_custom_command(OUTPUT ${out}.o DEPFILE ${out}.o.d DEPENDS ${file} ${out}.fatbin ${driver}/runtime.cuh
      COMMAND ${zig_tools}/cu -c -std=c++20 -O2 -g0 -fPIC -fno-exceptions -fno-rtti ${defines} -DCHIMERE_DRIVER
        -Wno-deprecated-anon-enum-enum-conversion -Wno-cuda-compat -ffile-prefix-map=${CMAKE_SOURCE_DIR}=.
        -include ${driver}/runtime.cuh -I${src} -I${CMAKE_SOURCE_DIR}/include -idirafter ${cuda_h}
        -Xclang -fcuda-include-gpubinary -Xclang ${out}.fatbin -MD -MT ${out}.o -MF ${out}.o.d -o ${out}.o ${file}
      VERBATIM COMMENT "Host part of ${name}.cu")
    target_sources(${target} PRIVATE ${out}.o)
    set_source_files_properties(${out}.o PROPERTIES EXTERNAL_OBJECT ON GENERATED ON)
  endforeach()
  target_sources(${target} PRIVATE ${driver}/driver.c)
  set_source_files_properties(${driver}/driver.c PROPERTIES COMPILE_OPTIONS "-idirafter;${cuda_h}")
  target_compile_definitions(${target} PUBLIC CHIMERE_CUDA)
endfunction()
