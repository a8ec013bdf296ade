#include "tasks/template.h"

#include <gtest/gtest.h>

#include "base/testing/folder_test.h"

namespace athanor::tasks::template_test {
namespace {

using Json = nlohmann::ordered_json;

const Json kRow{
    {"question", "What?"}, {"choices", {{"text", {"x", "y"}}, {"label", {"A", "B"}}}}, {"n", 3}, {"u", "é👍"}};

std::string render(const std::string& source) { return Template::compile(source, "task t: doc_to_text").render(kRow); }

std::string refusal_of(const std::string& source) {
  return message_of<DataError>([&] { render(source); });
}

// tests/interop/test_eval_templates.py compares thousands of templates with Jinja2; here are those whose result is
// plain.
TEST(Template, PrintsValuesAsPythonDoes) {
  EXPECT_EQ(render("Q: {{question}}\nA:\n"), "Q: What?\nA:\n");
  EXPECT_EQ(render("{{choices.text}}{{choices['label'][-1]}}"), "['x', 'y']B");
  EXPECT_EQ(render("{{none}} {{true}} {{1.0}} {{1e-5}} {{(1,)}} {{ {'a': \"it's\"} }}"),
            "None True 1.0 1e-05 (1,) {'a': \"it's\"}");
  EXPECT_EQ(render("{{u|length}}{{u[1]}}{{u[::-1]}}"), "2👍👍é");
  EXPECT_EQ(render("{{ -7 // 2}} {{ -7 % 3}} {{2 ** 3 ** 2}} {{ -2 ** 2}}"), "-4 2 64 4");
}

TEST(Template, LoopsKeepTheirAssignmentsToThemselves) {
  EXPECT_EQ(render("{% set x = 1 %}{% for c in choices.text %}{{x}}{% set x = 2 %}{% endfor %}{{x}}"), "111");
  EXPECT_EQ(render("{% set s = namespace(n=0) %}{% for c in choices.text %}{% set s.n = s.n + 1 %}{% endfor %}{{s.n}}"),
            "2");
}

TEST(Template, AnErrorNamesTaskKeyPlaceAndWhatWasThere) {
  EXPECT_EQ(refusal_of("Q:\n {{qestion}}"),
            "task t: doc_to_text, line 2, character 4, at \"qestion}}\": there is no \"qestion\" (did you mean "
            "\"question\"?); the row has "
            "question, choices, n, u");
  EXPECT_EQ(refusal_of("{{choices.txt}}"),
            "task t: doc_to_text, line 1, character 10, at \".txt}}\": there is no key \"txt\"; it has text, label");
  EXPECT_EQ(refusal_of("{{n + question}}"),
            "task t: doc_to_text, line 1, character 5, at \"+ question}}\": + does not take a int and a str");
  EXPECT_EQ(refusal_of("{{choices.label.index('Z')}}"),
            "task t: doc_to_text, line 1, character 22, at \"('Z')}}\": 'Z' is not in the list ['A', 'B']");
}

TEST(Template, ABrokenTemplateIsRefusedBeforeItMeetsARow) {
  const auto broken = [](const std::string& source) {
    return message_of<DataError>([&] { Template::compile(source, "task t: doc_to_text"); });
  };
  EXPECT_EQ(broken("{{question"),
            "task t: doc_to_text, line 1, character 1, at \"{{question\": the tag has no end; \"}}\" is missing");
  EXPECT_NE(broken("{% if n %}x").find("{% endif %} is missing"), std::string::npos);
  EXPECT_NE(broken("{% macro x() %}{% endmacro %}").find("this form has no block macro"), std::string::npos);
  EXPECT_NE(broken("{{n|strng}}").find("no filter strng (did you mean \"string\"?)"), std::string::npos);
  EXPECT_NE(broken("{{n is oddd}}").find("no test oddd (did you mean \"odd\"?)"), std::string::npos);
  EXPECT_NE(broken("{{1 +}}").find("a value is expected, not }}"), std::string::npos);
  EXPECT_NE(broken("\xff").find("not UTF-8 at byte 0"), std::string::npos);
}

TEST(Template, WhatPythonWouldAnswerDifferentlyIsRefused) {
  EXPECT_NE(refusal_of("{{9223372036854775807 + 1}}").find("more than 64 bits"), std::string::npos);
  EXPECT_NE(refusal_of("{{question.upper}}").find("only calls methods"), std::string::npos);
  EXPECT_NE(refusal_of("{{choices.text|map('upper')}}").find("a generator cannot be printed"), std::string::npos);
  EXPECT_NE(refusal_of("{{'x' * 99999999999}}").find("too long"), std::string::npos);
  EXPECT_NE(refusal_of("{% for i in range(9999) %}{% for j in range(9999) %}{% endfor %}{% endfor %}").find("steps"),
            std::string::npos);
  EXPECT_NE(refusal_of("{{(x|tojson) + '<'}}").find("only printed"), std::string::npos);
  EXPECT_NE(refusal_of("{{" + std::string(300, '(') + "1" + std::string(300, ')') + "}}").find("more than 100 levels"),
            std::string::npos);
}

TEST(Template, AnyDepthIsRefusedInLinearTime) {
  const auto times = [](int count, const std::string& text) {
    std::string all;
    for (int i = 0; i < count; ++i) all += text;
    return all;
  };
  for (const char* link :
       {"|upper", "|upper()", ".a", "[0]", "()", "+1", "*1", "**1", " and 1", " or 1", " if 1", " if 1 else 1"}) {
    EXPECT_NE(refusal_of("{{n" + times(20'000, link) + "}}").find("more than"), std::string::npos) << link;
  }
  for (const char* level : {"(", "[", "{1:", "-", "not "})
    EXPECT_FALSE(refusal_of("{{ " + times(20'000, level) + "1").empty()) << level;
  for (const char* level : {"{% if 1 %}", "{% for a in n %}", "{% set a %}"})
    EXPECT_NE(refusal_of(times(20'000, level)).find("more than 100 levels"), std::string::npos) << level;
  EXPECT_NE(
      refusal_of("{% set " + times(20'000, "(") + "a" + times(20'000, ")") + " = n %}").find("more than 100 levels"),
      std::string::npos);
  EXPECT_EQ(Template::compile("{{'a'" + times(300, "|upper") + "}}", "t").render(kRow), "A");
  EXPECT_EQ(Template::compile(times(20'000, "{{n}}{# c #} "), "t").render(kRow).size(), 40'000);
}

TEST(Template, OneExpressionKeepsItsValue) {
  const auto value_of = [](const std::string& source) {
    return to_json(Template::compile(source, "t").evaluate(kRow));
  };
  EXPECT_EQ(value_of("{{n}}"), 3);
  EXPECT_EQ(value_of("{{n}} "), "3 ");
  EXPECT_EQ(value_of("{{choices.text}}"), Json({"x", "y"}));
  EXPECT_EQ(value_of("[{{n}}]"), "[3]");
}

TEST(Template, AConditionHoldsAsInPython) {
  const auto holds = [](const std::string& source) { return Template::compile_expression(source, "t").holds(kRow); };
  EXPECT_TRUE(holds("question == 'What?'"));
  EXPECT_FALSE(holds("question == 'what?'"));
  EXPECT_FALSE(holds("n == '3'"));
  EXPECT_TRUE(holds("n > 2 and 'x' in choices.text"));
  EXPECT_FALSE(holds("[]"));
  EXPECT_NE(message_of<DataError>([&] { holds("m == 'a'"); }).find("there is no \"m\""), std::string::npos);
}

}  // namespace
}  // namespace athanor::tasks::template_test
