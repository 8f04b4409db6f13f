#include "generic/cublas_lt.h"

#if __has_include(<cublasLt.h>)

#include <cublasLt.h>
#include <dlfcn.h>

#include <map>
#include <mutex>
#include <string>
#include <tuple>

namespace k3pod::kernels {
namespace {

Status lt_status(cublasStatus_t status, const char* call) {
    if (status == CUBLAS_STATUS_SUCCESS) return Status::ok();
    return internal_error(std::string(call) + " failed with cuBLAS status " +
                          std::to_string(static_cast<int>(status)));
}

// The calls that are used, by the names that the library has them under.
struct Library {
    void* file = nullptr;
    decltype(&cublasLtCreate) create = nullptr;
    decltype(&cublasLtMatmulDescInit_internal) init_product = nullptr;
    decltype(&cublasLtMatmulDescSetAttribute) set_product = nullptr;
    decltype(&cublasLtMatrixLayoutInit_internal) init_layout = nullptr;
    decltype(&cublasLtMatmulPreferenceInit_internal) init_preference = nullptr;
    decltype(&cublasLtMatmulPreferenceSetAttribute) set_preference = nullptr;
    decltype(&cublasLtMatmulAlgoGetHeuristic) find_algorithm = nullptr;
    decltype(&cublasLtMatmul) multiply = nullptr;

    Library() {
        for (const char* name : {"libcublasLt.so.13", "libcublasLt.so"}) {
            if (file == nullptr) file = dlopen(name, RTLD_NOW | RTLD_LOCAL);
        }
        if (file == nullptr) return;
        const bool is_whole = take(create, "cublasLtCreate") &&
                              take(init_product, "cublasLtMatmulDescInit_internal") &&
                              take(set_product, "cublasLtMatmulDescSetAttribute") &&
                              take(init_layout, "cublasLtMatrixLayoutInit_internal") &&
                              take(init_preference, "cublasLtMatmulPreferenceInit_internal") &&
                              take(set_preference, "cublasLtMatmulPreferenceSetAttribute") &&
                              take(find_algorithm, "cublasLtMatmulAlgoGetHeuristic") &&
                              take(multiply, "cublasLtMatmul");
        if (!is_whole) file = nullptr;
    }

  private:
    template <class Function>
    bool take(Function& function, const char* name) {
        function = reinterpret_cast<Function>(dlsym(file, name));
        return function != nullptr;
    }
};

const Library& library() {
    static const Library loaded;
    return loaded;
}

// What cuBLASLt has to be told about one shape, and the algorithm that it chose.
struct Plan {
    cublasLtMatmulDescOpaque_t product;
    cublasLtMatrixLayoutOpaque_t w, x, y;
    cublasLtMatmulAlgo_t algorithm;
};

Status describe(const Bf16Product& p, Plan& plan) {
    const Library& lt = library();
    K3POD_TRY(lt_status(
        lt.init_product(&plan.product, sizeof(plan.product), CUBLAS_COMPUTE_32F, CUDA_R_32F),
        "cublasLtMatmulDescInit"));
    const cublasOperation_t transposed = CUBLAS_OP_T;
    K3POD_TRY(lt_status(
        lt.set_product(&plan.product, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof(transposed)),
        "cublasLtMatmulDescSetAttribute"));
    // Its matrices are stored by columns: W and x as [cols, .], y as [rows, tokens].
    const auto layout = [&](cublasLtMatrixLayoutOpaque_t& at, cudaDataType type, int64_t rows,
                            int64_t cols, int64_t stride) {
        return lt_status(lt.init_layout(&at, sizeof(at), type, static_cast<uint64_t>(rows),
                                        static_cast<uint64_t>(cols), stride),
                         "cublasLtMatrixLayoutInit");
    };
    K3POD_TRY(layout(plan.w, CUDA_R_16BF, p.cols, p.rows, p.cols));
    K3POD_TRY(layout(plan.x, CUDA_R_16BF, p.cols, p.tokens, p.cols));
    return layout(plan.y, CUDA_R_32F, p.rows, p.tokens, p.y_stride);
}

Status choose(cublasLtHandle_t handle, Plan& plan) {
    const Library& lt = library();
    cublasLtMatmulPreferenceOpaque_t preference;
    K3POD_TRY(lt_status(lt.init_preference(&preference, sizeof(preference)),
                        "cublasLtMatmulPreferenceInit"));
    const auto most = static_cast<uint64_t>(kCublasWorkspaceBytes);
    K3POD_TRY(lt_status(lt.set_preference(&preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                          &most, sizeof(most)),
                        "cublasLtMatmulPreferenceSetAttribute"));
    cublasLtMatmulHeuristicResult_t found = {};
    int count = 0;
    K3POD_TRY(lt_status(lt.find_algorithm(handle, &plan.product, &plan.w, &plan.x, &plan.y, &plan.y,
                                          &preference, 1, &found, &count),
                        "cublasLtMatmulAlgoGetHeuristic"));
    if (count == 0) return internal_error("cuBLASLt has no algorithm for a product of bf16");
    plan.algorithm = found.algo;
    return Status::ok();
}

// One of each device: handle and the plans made so far.
class Plans {
  public:
    Result<cublasLtHandle_t> handle() {
        if (handle_ == nullptr) {
            K3POD_TRY(lt_status(library().create(&handle_), "cublasLtCreate"));
        }
        return handle_;
    }
    Result<const Plan*> plan(const Bf16Product& p) {
        const auto key = std::tuple(p.tokens, p.rows, p.cols, p.y_stride);
        const auto known = plans_.find(key);
        if (known != plans_.end()) return &known->second;
        Plan made;
        K3POD_ASSIGN(cublasLtHandle_t handle, handle());
        K3POD_TRY(describe(p, made));
        K3POD_TRY(choose(handle, made));
        return &plans_.emplace(key, made).first->second;
    }
    std::mutex mutex;

  private:
    cublasLtHandle_t handle_ = nullptr;  // lives as long as the process
    std::map<std::tuple<int32_t, int32_t, int32_t, int64_t>, Plan> plans_;
};

}  // namespace

bool has_cublas_lt() {
    return library().file != nullptr;
}

Status multiply_bf16(const Bf16Product& p, CudaStream stream) {
    static Plans plans;
    const std::lock_guard lock(plans.mutex);
    K3POD_ASSIGN(cublasLtHandle_t handle, plans.handle());
    K3POD_ASSIGN(const Plan* plan, plans.plan(p));
    const float alpha = 1.0f;
    const float beta = p.adds ? 1.0f : 0.0f;
    return lt_status(
        library().multiply(handle, const_cast<cublasLtMatmulDescOpaque_t*>(&plan->product), &alpha,
                           p.w, const_cast<cublasLtMatrixLayoutOpaque_t*>(&plan->w), p.x,
                           const_cast<cublasLtMatrixLayoutOpaque_t*>(&plan->x), &beta, p.y,
                           const_cast<cublasLtMatrixLayoutOpaque_t*>(&plan->y), p.y,
                           const_cast<cublasLtMatrixLayoutOpaque_t*>(&plan->y), &plan->algorithm,
                           p.workspace, static_cast<size_t>(kCublasWorkspaceBytes), stream),
        "cublasLtMatmul");
}

}  // namespace k3pod::kernels

#else

namespace k3pod::kernels {

bool has_cublas_lt() {
    return false;
}

Status multiply_bf16(const Bf16Product&, CudaStream) {
    return internal_error("built without cuBLASLt");
}

}  // namespace k3pod::kernels

#endif
