"""What people ask of Joulie, answered once: pods, nodes, plans, cards, decisions and energy.

`doctor` answers whether an installation is sound."""
