// Kernels: compiled by NVRTC at run time, loaded and launched through the driver on torch's current stream.
#include <c10/cuda/CUDAStream.h>
#include <cuda.h>
#include <dlfcn.h>

#include <string>

#include "../guard.h"

using rlpipe::guarded;

namespace {
using Program = struct NvrtcProgram *;

template <class F>
F *symbol(void *library, const char *name) {
  auto *found = reinterpret_cast<F *>(dlsym(library, name));
  TORCH_CHECK(found, "libcaffe2_nvrtc.so has no `", name, "`");
  return found;
}

// libcaffe2_nvrtc.so lies beside libtorch_cuda.so and needs libnvrtc and libcuda: its run path finds them wherever the
// wheels put them, so no path is made here, and nvrtc.h is not needed.
struct Api {
  void *library = [] {
    void *opened = dlopen("libcaffe2_nvrtc.so", RTLD_NOW | RTLD_GLOBAL);
    TORCH_CHECK(opened, dlerror());
    return opened;
  }();
#define RLPIPE_NVRTC(name, ...) int (*name)(__VA_ARGS__) = symbol<int(__VA_ARGS__)>(library, "nvrtc" #name)
  RLPIPE_NVRTC(Version, int *, int *);
  RLPIPE_NVRTC(CreateProgram, Program *, const char *, const char *, int, const char *const *, const char *const *);
  RLPIPE_NVRTC(CompileProgram, Program, int, const char *const *);
  RLPIPE_NVRTC(GetProgramLogSize, Program, size_t *);
  RLPIPE_NVRTC(GetProgramLog, Program, char *);
  RLPIPE_NVRTC(GetCUBINSize, Program, size_t *);
  RLPIPE_NVRTC(GetCUBIN, Program, char *);
  RLPIPE_NVRTC(DestroyProgram, Program *);
#undef RLPIPE_NVRTC
#define RLPIPE_DRIVER(name) decltype(&::name) name = symbol<decltype(::name)>(library, #name)
  RLPIPE_DRIVER(cuGetErrorString);
  RLPIPE_DRIVER(cuModuleLoadData);
  RLPIPE_DRIVER(cuModuleUnload);
  RLPIPE_DRIVER(cuModuleGetFunction);
  RLPIPE_DRIVER(cuFuncGetAttribute);
  RLPIPE_DRIVER(cuFuncSetAttribute);
  RLPIPE_DRIVER(cuLaunchKernelEx);
#undef RLPIPE_DRIVER
};

Api &api() {
  static Api loaded;
  return loaded;
}

void check(CUresult result, const char *what) {
  if (result == CUDA_SUCCESS) return;
  const char *text = nullptr;
  api().cuGetErrorString(result, &text);
  TORCH_CHECK(false, what, ": ", text ? text : "unknown error of the driver");
}

void compiled(int status, const char *what) { TORCH_CHECK(status == 0, what, " failed with ", status); }

struct Owned {
  Program program = nullptr;
  ~Owned() {
    if (program) api().DestroyProgram(&program);
  }
};
}  // namespace

extern "C" {

char *rlpipe_cuda_nvrtc_version(int *major, int *minor) {
  return guarded([&] { compiled(api().Version(major, minor), "nvrtcVersion"); });
}

// `out` is malloc'd, for rlpipe_cuda_free.
char *rlpipe_cuda_compile(const char *source, const char *const *options, size_t count, char **out, size_t *size) {
  return guarded([&] {
    Owned owned;
    compiled(api().CreateProgram(&owned.program, source, "kernels.cu", 0, nullptr, nullptr), "nvrtcCreateProgram");
    if (api().CompileProgram(owned.program, static_cast<int>(count), options) != 0) {
      size_t length = 0;
      compiled(api().GetProgramLogSize(owned.program, &length), "nvrtcGetProgramLogSize");
      std::string log(length, '\0');
      compiled(api().GetProgramLog(owned.program, log.data()), "nvrtcGetProgramLog");
      TORCH_CHECK(false, log.c_str());
    }
    compiled(api().GetCUBINSize(owned.program, size), "nvrtcGetCUBINSize");
    *out = static_cast<char *>(malloc(*size));
    TORCH_CHECK(*out, "no memory for ", *size, " bytes of a compiled kernel");
    compiled(api().GetCUBIN(owned.program, *out), "nvrtcGetCUBIN");
  });
}

char *rlpipe_cuda_module_new(const char *image, CUmodule *out) {
  return guarded([&] { check(api().cuModuleLoadData(out, image), "cuModuleLoadData"); });
}
void rlpipe_cuda_module_free(CUmodule module) { api().cuModuleUnload(module); }

// The function may be launched with as much dynamic shared memory as the card has beside its static.
char *rlpipe_cuda_module_function(CUmodule module, const char *name, CUfunction *out) {
  return guarded([&] {
    check(api().cuModuleGetFunction(out, module, name), name);
    int most = 0, fixed = 0;
    C10_CUDA_CHECK(cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0));
    check(api().cuFuncGetAttribute(&fixed, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, *out), name);
    check(api().cuFuncSetAttribute(*out, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, most - fixed), name);
  });
}

// `arguments` point at the values. Nothing here synchronizes or allocates, so a capture takes it. `early`: the kernel waits by
// itself for what is ahead of it in the stream.
char *rlpipe_cuda_launch(CUfunction function, const uint32_t grid[3], const uint32_t block[3], uint32_t shared_bytes,
                         int early, void **arguments) {
  return guarded([&] {
    CUlaunchAttribute attribute{};
    attribute.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
    attribute.value.programmaticStreamSerializationAllowed = 1;
    CUlaunchConfig config{};
    config.gridDimX = grid[0], config.gridDimY = grid[1], config.gridDimZ = grid[2];
    config.blockDimX = block[0], config.blockDimY = block[1], config.blockDimZ = block[2];
    config.sharedMemBytes = shared_bytes;
    config.hStream = c10::cuda::getCurrentCUDAStream(0).stream();
    config.attrs = &attribute, config.numAttrs = early ? 1 : 0;
    check(api().cuLaunchKernelEx(&config, function, arguments, nullptr), "cuLaunchKernelEx");
  });
}
}
