// SPDX-License-Identifier: Apache-2.0
// What the .cu files of this room do for tensors on a GPU; operations_cuda.cpp registers it.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <tuple>

#include "ballast/kernels/optional_tensor.h"

namespace ballast::kernels {

// activation_cuda.cu
at::Tensor activate_cuda(const at::Tensor& given, int64_t activation);
at::Tensor activate_backward_cuda(const at::Tensor& given_dy, const at::Tensor& given_x,
                                  int64_t activation);

// adam_cuda.cu
void adam_cuda_(const at::Tensor& working, const at::Tensor& master, const at::Tensor& gradient,
                const at::Tensor& first_moment, const at::Tensor& second_moment,
                const at::Tensor& numbers, const at::Tensor& gradient_scale, double beta1,
                double beta2, double epsilon, double weight_decay, double rate, bool clear);

// bias_sums_cuda.cu
void mask_and_add_rows_cuda_(const at::Tensor& y, const OptionalTensor& active,
                             const OptionalTensor& sum);

// cross_entropy_cuda.cu
void softmax_cross_entropy_cuda_(at::Tensor& logits, const at::Tensor& targets, double scale,
                                 const at::Tensor& losses);

// dropout_cuda.cu
at::Tensor leave_out_cuda(const at::Tensor& given, const at::Tensor& key, int64_t place,
                          int64_t first_row, double part);

// embedding_cuda.cu
at::Tensor embed_cuda(const at::Tensor& tokens, const at::Tensor& positions,
                      const at::Tensor& words, const at::Tensor& places);
void add_rows_at_cuda_(const at::Tensor& sum, const at::Tensor& indices, const at::Tensor& rows);

// gradient_scale_cuda.cu
std::tuple<at::Tensor, at::Tensor> gradient_scale_cuda(const at::Tensor& sums,
                                                       const at::Tensor& limit, double clip_norm,
                                                       bool over_all, at::ScalarType dtype);

// layer_norm_cuda.cu
std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> norm_rows_cuda(
    const at::Tensor& given_x, const OptionalTensor& given_change, const at::Tensor& weight,
    const OptionalTensor& bias, bool takes_mean, double epsilon);
at::Tensor norm_rows_backward_cuda(const at::Tensor& given_dnormed,
                                   const OptionalTensor& given_dsum, const at::Tensor& given_sum,
                                   const at::Tensor& mean, const at::Tensor& inverse,
                                   const at::Tensor& weight, const OptionalTensor& weight_sum,
                                   const OptionalTensor& bias_sum, bool takes_mean,
                                   const OptionalTensor& change_sum);

// muon_cuda.cu
void muon_momentum_cuda_(const at::Tensor& gradient, const at::Tensor& momentum,
                         const at::Tensor& offsets, const at::Tensor& directions,
                         const at::Tensor& gradient_scale, double decay);
void muon_move_cuda_(const at::Tensor& working, const at::Tensor& master, const at::Tensor& offsets,
                     const at::Tensor& directions, const at::Tensor& numbers,
                     const at::Tensor& gradient_scale, double weight_decay, double rate,
                     double size);

// turned_heads_cuda.cu
std::tuple<at::Tensor, at::Tensor> turn_heads_cuda(const at::Tensor& given,
                                                   const OptionalTensor& cosines,
                                                   const OptionalTensor& sines,
                                                   const OptionalTensor& query_norm,
                                                   const OptionalTensor& key_norm, int64_t queries,
                                                   int64_t keys, double epsilon, bool with_values);
at::Tensor turn_heads_back_cuda(const at::Tensor& dqueries, const at::Tensor& dkeys,
                                const at::Tensor& dvalues, const at::Tensor& given,
                                const OptionalTensor& inverse, const OptionalTensor& cosines,
                                const OptionalTensor& sines, const OptionalTensor& query_norm,
                                const OptionalTensor& key_norm, const OptionalTensor& query_sum,
                                const OptionalTensor& key_sum);

// weight_average_cuda.cu
void average_weights_cuda_(const at::Tensor& average, const at::Tensor& weights,
                           const at::Tensor& share, const at::Tensor& gradient_scale);

}  // namespace ballast::kernels
