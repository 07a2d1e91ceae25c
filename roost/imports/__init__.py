"""What was there before Roost? Clusters that a Senlin database holds, and what a Nova knows of them."""
