// SPDX-License-Identifier: Apache-2.0
// Matrix products by cublasLt, which does what surrounds them as it reads and writes.
#include <ATen/Context.h>
#include <ATen/cuda/CUDAContext.h>
#include <ATen/cuda/Exceptions.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <c10/cuda/CUDAEvent.h>
#include <c10/cuda/CUDAGraphsC10Utils.h>
#include <c10/cuda/CUDAGuard.h>
#include <cublasLt.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

#include "ballast/kernels/gemm_configurations.h"
#include "ballast/kernels/gemm_paths.h"
#include "ballast/kernels/optional_tensor.h"

namespace ballast::kernels {
namespace {

using at::Tensor;

constexpr uint64_t kWorkspaceBytes = 32 << 20;
constexpr int kCandidates = 16;
// All candidates are measured shortly, then the best of them in turns. A turn is long enough that
// the launch of its first run does not count.
constexpr int kRounds = 3, kWarmUps = 1, kRuns = 3;
constexpr float kHopeless = 1.15F;  // times the best so far: not measured again
constexpr float kMillisecondsOfATurn = 0.3F;
// Products from this size on make a GPU reach its limit of power. Then those are fastest that need
// the least of it, which shows after a while: the best are measured once more, for longer.
constexpr double kHeats = 1e11;
constexpr size_t kContenders = 12;
constexpr float kContends = 1.08F;  // times the best
constexpr float kWarmUpMilliseconds = 30, kHotMilliseconds = 50;
// Smaller products take about as long as their launch, which is what would be measured.
constexpr double kWorthMeasuring = 4e9;
// From this many operations a matrix of a stack is worth a call of its own, if that spares passes
// over the result.
constexpr double kWorthACall = 1e10;
constexpr int64_t kLoadBytes = 16, kLoad = kLoadBytes / 2;  // elements of bf16

struct Request {
  Tensor y, left, right;
  ProductForm form;
  ProductEnd end;
  Tensor bias;

  bool adds() const { return form == ProductForm::kAddedLeftTransposed; }
  bool left_transposed() const { return adds() || form == ProductForm::kLeftTransposed; }
  bool right_transposed() const { return form == ProductForm::kRightTransposed; }
  int64_t stack() const { return y.dim() == 3 ? y.size(0) : 1; }
  int64_t depth() const { return left.size(left_transposed() ? -2 : -1); }
  double operations() const {
    return 2.0 * static_cast<double>(y.numel()) * static_cast<double>(depth());
  }
  Request matrix(int64_t e) const {
    const auto of = [e](const Tensor& x) { return x.defined() ? x.select(0, e) : x; };
    return {of(y), of(left), of(right), form, end, of(bias)};
  }
};

// A single row may have any stride.
int64_t row_stride(const Tensor& x) { return x.size(-2) == 1 ? x.size(-1) : x.stride(-2); }
int64_t stack_stride(const Tensor& x) { return x.size(0) == 1 ? 0 : x.stride(0); }
uintptr_t address(const Tensor& x) { return reinterpret_cast<uintptr_t>(x.const_data_ptr()); }

// Rows that can be loaded 16 bytes at a time.
bool has_even_rows(const Tensor& x) {
  return x.is_cuda() && x.scalar_type() == at::kBFloat16 && x.stride(-1) == 1 &&
         x.size(-1) % kLoad == 0 && row_stride(x) % kLoad == 0 && row_stride(x) >= x.size(-1) &&
         (x.dim() == 2 || stack_stride(x) % kLoad == 0) && address(x) % kLoadBytes == 0;
}

bool has_shape(const Tensor& x, const Request& r, int64_t rows, int64_t columns) {
  return x.dim() == r.y.dim() && (x.dim() == 2 || x.size(0) == r.y.size(0)) && x.size(-2) == rows &&
         x.size(-1) == columns;
}

bool suits_bias(const Request& r) {
  const Tensor& bias = r.bias;
  if (!bias.defined()) return true;
  return bias.is_cuda() && bias.scalar_type() == at::kBFloat16 && bias.dim() == r.y.dim() - 1 &&
         bias.size(-1) == r.y.size(-1) && bias.stride(-1) == 1 && address(bias) % kLoadBytes == 0 &&
         (bias.dim() == 1 || (bias.size(0) == r.stack() && stack_stride(bias) % kLoad == 0));
}

bool suits(const Request& r) {
  if (r.y.dim() != 2 && r.y.dim() != 3) return false;
  if (r.left.dim() != r.y.dim() || r.right.dim() != r.y.dim()) return false;
  if (r.y.numel() == 0 || r.depth() == 0) return false;
  const int64_t rows = r.y.size(-2), columns = r.y.size(-1), depth = r.depth();
  return (r.left_transposed() ? has_shape(r.left, r, depth, rows)
                              : has_shape(r.left, r, rows, depth)) &&
         (r.right_transposed() ? has_shape(r.right, r, columns, depth)
                               : has_shape(r.right, r, depth, columns)) &&
         has_even_rows(r.y) && has_even_rows(r.left) && has_even_rows(r.right) && suits_bias(r);
}

// The power of two, up to 256, that all addresses are multiples of, in all matrices of a stack.
uint32_t alignment(const Request& r) {
  uintptr_t bits = 256;
  for (const Tensor* x : {&r.y, &r.left, &r.right, &r.bias}) {
    if (!x->defined()) continue;
    bits |= address(*x);
    if (r.y.dim() == 3) bits |= static_cast<uintptr_t>(stack_stride(*x) * x->element_size());
  }
  return static_cast<uint32_t>(bits & -bits);
}

uint32_t epilogue(const Request& r) {
  const bool bias = r.bias.defined();
  if (r.end == ProductEnd::kRelu)
    return bias ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_RELU;
  return bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
}

template <typename Value>
void set(cublasLtMatmulDescOpaque_t& operation, cublasLtMatmulDescAttributes_t attribute,
         Value value) {
  TORCH_CUDABLAS_CHECK(
      cublasLtMatmulDescSetAttribute(&operation, attribute, &value, sizeof(value)));
}
template <typename Value>
void set(cublasLtMatrixLayoutOpaque_t& layout, cublasLtMatrixLayoutAttribute_t attribute,
         Value value) {
  TORCH_CUDABLAS_CHECK(cublasLtMatrixLayoutSetAttribute(&layout, attribute, &value, sizeof(value)));
}
template <typename Value>
void set(cublasLtMatmulPreferenceOpaque_t& preference,
         cublasLtMatmulPreferenceAttributes_t attribute, Value value) {
  TORCH_CUDABLAS_CHECK(
      cublasLtMatmulPreferenceSetAttribute(&preference, attribute, &value, sizeof(value)));
}

// One of the library's ways to compute a product.
struct Way {
  cublasLtMatmulAlgo_t algorithm{};
  size_t workspace_bytes = 0;
  float milliseconds = 0;  // 0: not measured
};

// A product of cublasLt, which takes matrices by columns: what lies here as y [M, N] in rows is to
// it y^T, N x M. So it is asked for y^T = op(right)^T op(left)^T: its A is `right`, its B is
// `left`, and each is transposed there where it is here. Its D has a column for each row of y: the
// bias, of length N, goes along D's rows.
class LtProduct {
 public:
  // REQUIRES: suits(r), which must outlive the product.
  explicit LtProduct(const Request& r)
      : request_(r), a_(layout(r.right)), b_(layout(r.left)), d_(layout(r.y)) {
    TORCH_CUDABLAS_CHECK(cublasLtMatmulDescInit(&operation_, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    const auto transposition = [](bool yes) -> int32_t { return yes ? CUBLAS_OP_T : CUBLAS_OP_N; };
    set(operation_, CUBLASLT_MATMUL_DESC_TRANSA, transposition(r.right_transposed()));
    set(operation_, CUBLASLT_MATMUL_DESC_TRANSB, transposition(r.left_transposed()));
    set(operation_, CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue(r));
    if (r.bias.defined()) {
      set(operation_, CUBLASLT_MATMUL_DESC_BIAS_POINTER, r.bias.const_data_ptr());
      if (r.stack() > 1)
        set(operation_, CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE, stack_stride(r.bias));
    }
  }
  LtProduct(const LtProduct&) = delete;
  LtProduct& operator=(const LtProduct&) = delete;

  // What the library thinks best comes first; none where it has no such product.
  std::vector<Way> ways() {
    cublasLtMatmulPreferenceOpaque_t preference{};
    TORCH_CUDABLAS_CHECK(cublasLtMatmulPreferenceInit(&preference));
    set(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kWorkspaceBytes);
    // Parts of a sum are kept in fp32: in bf16 they would be rounded more than once.
    set(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
        uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE});
    for (const auto matrix :
         {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
          CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
      set(preference, matrix, alignment(request_));
    }
    std::array<cublasLtMatmulHeuristicResult_t, kCandidates> found{};
    int count = 0;
    const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
        at::cuda::getCurrentCUDABlasLtHandle(), &operation_, &a_, &b_, &d_, &d_, &preference,
        kCandidates, found.data(), &count);
    if (status != CUBLAS_STATUS_SUCCESS) count = 0;
    std::vector<Way> ways;
    for (int i = 0; i < count; ++i) {
      if (found[i].state == CUBLAS_STATUS_SUCCESS)
        ways.push_back({found[i].algo, found[i].workspaceSize});
    }
    return ways;
  }

  // Those of kConfigurations that the library has for this product.
  std::vector<Way> more_ways() {
    const cublasLtHandle_t handle = at::cuda::getCurrentCUDABlasLtHandle();
    cublasLtMatmulAlgo_t plain{};
    std::vector<Way> ways;
    if (cublasLtMatmulAlgoInit(handle, CUBLAS_COMPUTE_32F, CUDA_R_32F, CUDA_R_16BF, CUDA_R_16BF,
                               CUDA_R_16BF, CUDA_R_16BF, kAlgorithmOfHopper,
                               &plain) != CUBLAS_STATUS_SUCCESS)
      return ways;
    for (const Configuration& configuration : kConfigurations) {
      cublasLtMatmulAlgo_t algorithm = plain;
      cublasLtMatmulHeuristicResult_t result{};
      if (configure(algorithm, configuration) &&
          cublasLtMatmulAlgoCheck(handle, &operation_, &a_, &b_, &d_, &d_, &algorithm, &result) ==
              CUBLAS_STATUS_SUCCESS &&
          result.state == CUBLAS_STATUS_SUCCESS && result.workspaceSize <= kWorkspaceBytes)
        ways.push_back({algorithm, result.workspaceSize});
    }
    return ways;
  }

  // Computes into `y`, laid out as the request's, which is what is added to.
  cublasStatus_t run(const Way& way, const Tensor& y) {
    const Request& r = request_;
    // From libtorch's cache each time: it knows the order on streams and in recorded graphs.
    Tensor workspace;
    void* workspace_data = nullptr;
    if (way.workspace_bytes > 0) {
      workspace =
          at::empty({static_cast<int64_t>(way.workspace_bytes)}, r.y.options().dtype(at::kByte));
      workspace_data = workspace.mutable_data_ptr();
    }
    const float one = 1, kept = r.adds() ? 1 : 0;
    return cublasLtMatmul(at::cuda::getCurrentCUDABlasLtHandle(), &operation_, &one,
                          r.right.const_data_ptr(), &a_, r.left.const_data_ptr(), &b_, &kept,
                          r.y.const_data_ptr(), &d_, y.mutable_data_ptr(), &d_, &way.algorithm,
                          workspace_data, way.workspace_bytes, at::cuda::getCurrentCUDAStream());
  }

 private:
  static cublasLtMatrixLayoutOpaque_t layout(const Tensor& x) {
    cublasLtMatrixLayoutOpaque_t layout{};
    TORCH_CUDABLAS_CHECK(
        cublasLtMatrixLayoutInit(&layout, CUDA_R_16BF, static_cast<uint64_t>(x.size(-1)),
                                 static_cast<uint64_t>(x.size(-2)), row_stride(x)));
    if (x.dim() == 3 && x.size(0) > 1) {
      set(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, static_cast<int32_t>(x.size(0)));
      set(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, stack_stride(x));
    }
    return layout;
  }

  const Request& request_;
  cublasLtMatmulDescOpaque_t operation_{};
  cublasLtMatrixLayoutOpaque_t a_, b_, d_;
};

template <typename Work>
float milliseconds(const Work& work, int warm_ups, int runs) {
  for (int i = 0; i < warm_ups; ++i) work();
  c10::cuda::CUDAEvent start(cudaEventDefault), end(cudaEventDefault);
  start.record();
  for (int i = 0; i < runs; ++i) work();
  end.record();
  end.synchronize();
  return start.elapsed_time(end) / static_cast<float>(runs);
}

float median(std::vector<float> numbers) {
  const auto middle = numbers.begin() + static_cast<std::ptrdiff_t>(numbers.size() / 2);
  std::ranges::nth_element(numbers, middle);
  return *middle;
}

Way fastest(const std::vector<Way>& ways) {
  return *std::ranges::min_element(ways, {}, &Way::milliseconds);
}

std::optional<Way> first_way(const Request& r) {
  const auto ways = LtProduct(r).ways();
  return ways.empty() ? std::nullopt : std::optional(ways[0]);
}

std::optional<Way> fastest_way(const Request& r) {
  // A sum must not be added to by what is only measured.
  const Tensor y = r.adds() ? at::empty_strided(r.y.sizes(), r.y.strides(), r.y.options()) : r.y;
  LtProduct product(r);
  std::vector<Way> ways = product.ways();
  std::ranges::copy(product.more_ways(), std::back_inserter(ways));
  std::erase_if(ways, [&](const Way& way) { return product.run(way, y) != CUBLAS_STATUS_SUCCESS; });
  if (ways.empty()) return std::nullopt;
  const auto run = [&](const Way& way) { TORCH_CUDABLAS_CHECK(product.run(way, y)); };
  for (Way& way : ways) way.milliseconds = milliseconds([&] { run(way); }, kWarmUps, kRuns);
  std::vector<std::vector<float>> times(ways.size());
  for (int round = 0; round < kRounds; ++round) {
    const float limit = kHopeless * fastest(ways).milliseconds;
    for (size_t i = 0; i < ways.size(); ++i) {
      if (ways[i].milliseconds > limit) continue;
      const int runs =
          std::max(kRuns, static_cast<int>(kMillisecondsOfATurn / ways[i].milliseconds));
      times[i].push_back(milliseconds([&] { run(ways[i]); }, kWarmUps, runs));
      ways[i].milliseconds = median(times[i]);
    }
  }
  if (r.operations() < kHeats) return fastest(ways);
  std::ranges::sort(ways, {}, &Way::milliseconds);
  const float limit = kContends * ways.front().milliseconds;
  std::erase_if(ways, [&](const Way& way) { return way.milliseconds > limit; });
  ways.resize(std::min(ways.size(), kContenders));
  for (Way& way : ways) {
    const auto runs = [&](float in_all) { return static_cast<int>(in_all / way.milliseconds) + 1; };
    way.milliseconds =
        milliseconds([&] { run(way); }, runs(kWarmUpMilliseconds), runs(kHotMilliseconds));
  }
  return fastest(ways);
}

// Measuring takes memory for another sum: where that is short, what the library thinks best.
std::optional<Way> fastest_way_if_it_fits(const Request& r) {
  try {
    return fastest_way(r);
  } catch (const c10::OutOfMemoryError&) {
    return first_way(r);
  }
}

// What was chosen for each kind of request, for all threads.
class ChosenWays {
 public:
  std::optional<Way> find(const Request& r) {
    const std::lock_guard lock(mutex_);
    const bool deterministic = at::globalContext().deterministicAlgorithms();
    const Key key = key_of(r, deterministic);
    if (const auto known = chosen_.find(key); known != chosen_.end()) return known->second;
    // While a graph is recorded nothing runs; the next call outside of it measures.
    if (c10::cuda::currentStreamCaptureStatusMayInitCtx() != c10::cuda::CaptureStatus::None)
      return first_way(r);
    const bool measured = !deterministic && r.operations() >= kWorthMeasuring;
    const std::optional<Way> way = measured ? fastest_way_if_it_fits(r) : first_way(r);
    chosen_.emplace(key, way);
    return way;
  }

 private:
  using Key = std::array<int64_t, 16>;

  static Key key_of(const Request& r, bool deterministic) {
    const auto stride = [&r](const Tensor& x) {
      return x.defined() && r.y.dim() == 3 ? stack_stride(x) : 0;
    };
    return {r.y.get_device(), deterministic,      static_cast<int64_t>(r.form),
            epilogue(r),      alignment(r),       r.stack(),
            r.y.size(-2),     r.y.size(-1),       r.depth(),
            row_stride(r.y),  row_stride(r.left), row_stride(r.right),
            stride(r.y),      stride(r.left),     stride(r.right),
            stride(r.bias)};
  }

  std::mutex mutex_;
  std::map<Key, std::optional<Way>> chosen_;
};

bool multiply(const Request& r) {
  static ChosenWays ways;
  if (const std::optional<Way> way = ways.find(r)) {
    TORCH_CUDABLAS_CHECK(LtProduct(r).run(*way, r.y));
    return true;
  }
  if (r.stack() == 1) return false;
  if (r.operations() / static_cast<double>(r.stack()) < kWorthACall) return false;
  for (int64_t e = 0; e < r.stack(); ++e) {
    if (multiply(r.matrix(e))) continue;
    TORCH_CHECK(e == 0, "multiply_fused: cublasLt takes some matrices of a stack only");
    return false;
  }
  return true;
}

bool multiply_fused_cuda(const Tensor& y, const Tensor& left, const Tensor& right, int64_t form,
                         int64_t end, const OptionalTensor& bias) {
  const Request r{y,
                  left,
                  right,
                  static_cast<ProductForm>(form),
                  static_cast<ProductEnd>(end),
                  bias.value_or(Tensor())};
  const c10::cuda::CUDAGuard guard(y.device());
  return suits(r) && multiply(r);
}

}  // namespace

TORCH_LIBRARY_IMPL(ballast, CUDA, library) { library.impl("multiply_fused", multiply_fused_cuda); }

}  // namespace ballast::kernels
