// What eslint looks for in the dashboard's modules. Names and types are tsc's part (tsconfig.json).
import js from "@eslint/js";

export default [
  js.configs.recommended,
  {
    rules: {
      eqeqeq: "error",
      "no-undef": "off",
      "no-var": "error",
      "prefer-const": "error",
      "no-unused-vars": ["error", { argsIgnorePattern: "^_" }],
      "no-eval": "error",
      "no-implied-eval": "error",
      // Nothing that comes from the API is ever parsed as HTML.
      "no-restricted-properties": [
        "error",
        { property: "innerHTML" },
        { property: "outerHTML" },
        { property: "insertAdjacentHTML" },
      ],
      "max-len": ["error", { code: 140 }],
    },
  },
];
