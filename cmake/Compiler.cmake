# Warnings, sanitizers, linker and compiler cache: everything about how files are compiled.
add_library(k3pod_flags INTERFACE)
set(warnings -Wall -Wextra -Wshadow -Wconversion -Wno-sign-conversion -Wnon-virtual-dtor)
# g++ 12 sees overlaps in std::string's operator+ that are not there (GCC bug 105329).
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  list(APPEND warnings -Wno-restrict)
endif()
# What nvcc generates for the host does not survive -Wconversion.
set(cuda_warnings -Xcompiler=-Wall,-Wextra)
if(K3POD_WERROR)
  list(APPEND warnings -Werror)
  list(APPEND cuda_warnings -Werror=all-warnings)
endif()
target_compile_options(k3pod_flags INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:${warnings}>"
                                             "$<$<COMPILE_LANGUAGE:CUDA>:${cuda_warnings}>")
target_include_directories(k3pod_flags INTERFACE ${CMAKE_SOURCE_DIR}/include)

if(K3POD_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
    message(FATAL_ERROR "K3POD_FUZZ needs clang: configure with -DCMAKE_CXX_COMPILER=clang++")
  endif()
  set(K3POD_SANITIZE "address,fuzzer-no-link")
endif()

if(K3POD_SANITIZE)
  add_compile_options(-fsanitize=${K3POD_SANITIZE} -fno-omit-frame-pointer -g1)
  add_link_options(-fsanitize=${K3POD_SANITIZE})
  if(K3POD_SANITIZE MATCHES "undefined")
    # Null, alignment and vptr checks double the time to compile; the address sanitizer catches what they
    # would, but for unaligned reads, which the parsers do by memcpy.
    add_compile_options(-fno-sanitize-recover=all -fno-sanitize=null,alignment,object-size,vptr)
  endif()
endif()

find_program(K3POD_CCACHE ccache)
if(K3POD_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # Without the two allowances ccache does not keep what was compiled with a precompiled header.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros ${K3POD_CCACHE})
endif()
find_program(K3POD_MOLD mold)
if(K3POD_MOLD AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND NOT K3POD_SANITIZE)
  add_link_options(-fuse-ld=mold)
endif()
find_package(Threads REQUIRED)
