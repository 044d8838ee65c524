// SPDX-License-Identifier: Apache-2.0
#include "ballast/inference/audit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/loading/sparse_model.h"
#include "tests/support/error_of.h"

namespace ballast::inference {
namespace {

using test::SparseModel;
using ::testing::HasSubstr;

AuditReport audit(const SparseModel& m, const AuditOptions& options, int64_t tokens = 400,
                  int64_t stride = 0) {
  const auto source = test::random_tokens(tokens, m.config.model.vocabulary);
  const int64_t context = m.config.model.context;
  const batches::EvalWindows windows(source, context, stride > 0 ? stride : context);
  return audit_causality(m.model, m.place, windows, options);
}

TEST(Audit, ChoiceByScoreOrPriceDoesNotLookAhead) {
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
    const SparseModel m(test::sparse_config(), dtype);
    for (const experts::RoutingMode mode :
         {experts::RoutingMode::kGreedy, experts::RoutingMode::kPriced}) {
      const AuditReport report = audit(m, {.routing = mode});
      EXPECT_TRUE(report.passed()) << report.first_leak;
      EXPECT_EQ(report.windows, 25);
      EXPECT_EQ(report.cuts, 100);
      EXPECT_GT(report.counts.routes, 100 * 2) << "both layers, and more than a token a cut";
      EXPECT_EQ(report.counts.routes, 2 * (report.counts.logits + report.counts.left_out));
      EXPECT_LT(report.counts.left_out, report.counts.logits / 10);
      EXPECT_LE(report.counts.logit_difference, report.bounds.logits);
    }
  }
}

TEST(Audit, BalancedRoutingIsCaught) {
  const SparseModel m(test::sparse_config(), at::kFloat);
  const AuditReport report = audit(m, {.routing = experts::RoutingMode::kBalanced});
  EXPECT_FALSE(report.passed());
  EXPECT_GT(report.counts.changed_routes, 0);
  EXPECT_GT(report.counts.changed_logits, 0);
  EXPECT_THAT(report.first_leak, HasSubstr("goes to expert"));
}

TEST(Audit, ASubtleLeakIsCaught) {
  // A window at a time, of four tokens for four experts: routes depend on three others at most.
  const SparseModel m(test::sparse_config(4), at::kFloat);
  const AuditReport report = audit(m, {.routing = experts::RoutingMode::kBalanced, .batch = 1}, 40);
  EXPECT_FALSE(report.passed());
}

TEST(Audit, TokensCannotCompeteForOneExpert) {
  config::Config config = test::sparse_config();
  config.experts.count = 1;
  EXPECT_TRUE(audit(SparseModel(config), {.routing = experts::RoutingMode::kBalanced}).passed());
}

TEST(Audit, ADenseModelHasNoRoutesToCompare) {
  config::Config config = test::sparse_config();
  config.experts.layers = 0;
  const AuditReport report = audit(SparseModel(config, at::kFloat), {});
  EXPECT_TRUE(report.passed());
  EXPECT_EQ(report.counts.routes, 0);
  EXPECT_GT(report.counts.logits, 100);
}

TEST(Audit, IsTheSameWheneverItIsDone) {
  const SparseModel m(test::sparse_config(), at::kFloat);
  const AuditOptions options{.routing = experts::RoutingMode::kBalanced};
  const AuditReport first = audit(m, options), again = audit(m, options);
  EXPECT_EQ(first.first_leak, again.first_leak);
  EXPECT_EQ(first.counts.changed_routes, again.counts.changed_routes);
}

TEST(Audit, TakesAsManyWindowsAndCutsAsThereAre) {
  const SparseModel m(test::sparse_config(), at::kFloat);
  EXPECT_EQ(audit(m, {.max_windows = 7}).windows, 7);
  EXPECT_EQ(audit(m, {.cuts = 2}).cuts, 2 * 25);
  const AuditReport shortest = audit(m, {}, 2);  // one prediction: a prefix of one token
  EXPECT_EQ(shortest.cuts, 1);
  EXPECT_EQ(shortest.counts.logits, 1);
  const AuditReport overlapping = audit(m, {}, 30, 5);
  EXPECT_EQ(overlapping.windows, 4);
  EXPECT_EQ(overlapping.cuts, 16);
}

TEST(Audit, StopsWhenAsked) {
  const SparseModel m(test::sparse_config(), at::kFloat);
  const batches::EvalWindows windows(test::random_tokens(400, 13), 16, 16);
  const AuditReport report =
      audit_causality(m.model, m.place, windows, {.batch = 5}, [](uint64_t) { return false; });
  EXPECT_EQ(report.windows, 5);
}

TEST(Audit, NeedsSomethingToChange) {
  EXPECT_THAT(test::error_of([] { audit(SparseModel(test::sparse_config(1)), {}); }),
              HasSubstr("context of one token"));
}

}  // namespace
}  // namespace ballast::inference
