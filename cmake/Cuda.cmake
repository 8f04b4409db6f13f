# The CUDA back end: whether it is built, for which GPUs, and how its files are compiled.
#
# Sets K3POD_HAVE_CUDA. Without it everything else builds as before, and a pod file that asks for
# backend = "cuda" is refused at start.
set(K3POD_CUDA AUTO CACHE STRING "Build the CUDA back end: AUTO (where nvcc is found), ON or OFF")
set_property(CACHE K3POD_CUDA PROPERTY STRINGS AUTO ON OFF)
set(K3POD_CUDA_ARCHS "90a;103a;121a" CACHE STRING "GPUs to compile for: 90a (H200), 103a (GB300), 121a (GB10)")

set(K3POD_HAVE_CUDA OFF)
if(NOT K3POD_CUDA MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR "K3POD_CUDA is '${K3POD_CUDA}'; it is one of AUTO, ON and OFF")
endif()
find_program(K3POD_NVCC nvcc PATHS /usr/local/cuda/bin)
if(K3POD_CUDA STREQUAL "ON" AND NOT K3POD_NVCC)
  message(FATAL_ERROR "K3POD_CUDA is ON and there is no nvcc in PATH or /usr/local/cuda/bin; install the CUDA "
                      "toolkit (13.0) or configure with -DK3POD_CUDA=OFF")
endif()
# Sanitized builds are about host code, and nvcc does not know their flags.
if(K3POD_NVCC AND NOT K3POD_CUDA STREQUAL "OFF" AND (K3POD_CUDA STREQUAL "ON" OR NOT K3POD_SANITIZE))
  set(K3POD_HAVE_CUDA ON)
endif()

if(K3POD_HAVE_CUDA)
  if(NOT CMAKE_CUDA_COMPILER)
    set(CMAKE_CUDA_COMPILER ${K3POD_NVCC})
  endif()
  # Both the GPUs and the language are newer than what the CMake of distributions knows of.
  set(CMAKE_CUDA_ARCHITECTURES OFF)
  enable_language(CUDA)
  find_package(CUDAToolkit REQUIRED)
  if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
    set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
  endif()
  string(APPEND CMAKE_CUDA_FLAGS " --expt-relaxed-constexpr")
  if(K3POD_CCACHE AND NOT CMAKE_CUDA_COMPILER_LAUNCHER)
    # By dependencies: preprocessed text would show one GPU's side of an #if only.
    set(CMAKE_CUDA_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_DEPEND=1 ${K3POD_CCACHE})
  endif()
  add_library(ext_cuda INTERFACE)
  target_link_libraries(ext_cuda INTERFACE CUDA::cudart_static)
endif()

# Files in these folders of kernels/ are compiled for one GPU only; everything else for all of them.
set(K3POD_CUDA_FOLDER_sm90 90a)
set(K3POD_CUDA_FOLDER_sm103 103a)
set(K3POD_CUDA_FOLDER_sm121 121a)

# The -gencode flags for a list of GPUs.
function(k3pod_gencode archs out)
  set(flags)
  foreach(arch ${archs})
    list(APPEND flags -gencode=arch=compute_${arch},code=sm_${arch})
  endforeach()
  set(${out} ${flags} PARENT_SCOPE)
endfunction()

# Compile options of the .cu files among `sources` (paths that begin with the folder).
function(k3pod_cuda_sources)
  foreach(source ${ARGN})
    if(source MATCHES "\\.cu$")
      get_filename_component(folder ${source} DIRECTORY)
      if(DEFINED K3POD_CUDA_FOLDER_${folder})
        k3pod_gencode("${K3POD_CUDA_FOLDER_${folder}}" flags)
      else()
        k3pod_gencode("${K3POD_CUDA_ARCHS}" flags)
      endif()
      set_source_files_properties(${source} PROPERTIES COMPILE_OPTIONS "${flags}")
    endif()
  endforeach()
endfunction()
